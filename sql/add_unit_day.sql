INSERT INTO unit_days (zone, day, series, policy, units)
VALUES ($1, $2, $3, $4, $5)
ON CONFLICT (zone, day, series, policy) DO UPDATE SET
    units = unit_days.units + excluded.units
