INSERT INTO unit_months (zone, month, late, series, policy, units)
VALUES ($1, $2, 1, $3, $4, $5)
ON CONFLICT (zone, month, late, series, policy) DO UPDATE SET
    units = unit_months.units + excluded.units
