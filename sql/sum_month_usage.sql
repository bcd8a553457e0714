INSERT INTO usage_months (month, late, zone, series, requests, denied, status_1xx, status_3xx, status_4xx, status_5xx)
SELECT CAST($1 AS BIGINT), 0, zone, series, SUM(requests), SUM(denied),
    SUM(status_1xx), SUM(status_3xx), SUM(status_4xx), SUM(status_5xx)
FROM usage_days WHERE zone = $2 AND day >= $3 AND day < $4 GROUP BY zone, series
