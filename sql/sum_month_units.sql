INSERT INTO unit_months (month, late, zone, series, policy, units)
SELECT CAST($1 AS BIGINT), 0, zone, series, policy, SUM(units)
FROM unit_days WHERE zone = $2 AND day >= $3 AND day < $4 GROUP BY zone, series, policy
