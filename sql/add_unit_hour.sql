INSERT INTO unit_hours (hour, series, policy, units)
VALUES ($1, $2, $3, $4)
ON CONFLICT (hour, series, policy) DO UPDATE SET
    units = unit_hours.units + excluded.units
