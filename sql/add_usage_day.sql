INSERT INTO usage_days (zone, day, series, requests, denied, status_1xx, status_3xx, status_4xx, status_5xx)
VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9)
ON CONFLICT (zone, day, series) DO UPDATE SET
    requests = usage_days.requests + excluded.requests,
    denied = usage_days.denied + excluded.denied,
    status_1xx = usage_days.status_1xx + excluded.status_1xx,
    status_3xx = usage_days.status_3xx + excluded.status_3xx,
    status_4xx = usage_days.status_4xx + excluded.status_4xx,
    status_5xx = usage_days.status_5xx + excluded.status_5xx
