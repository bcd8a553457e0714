INSERT INTO usage_hours (hour, series, requests, denied, status_1xx, status_3xx, status_4xx, status_5xx)
VALUES ($1, $2, $3, $4, $5, $6, $7, $8)
ON CONFLICT (hour, series) DO UPDATE SET
    requests = usage_hours.requests + excluded.requests,
    denied = usage_hours.denied + excluded.denied,
    status_1xx = usage_hours.status_1xx + excluded.status_1xx,
    status_3xx = usage_hours.status_3xx + excluded.status_3xx,
    status_4xx = usage_hours.status_4xx + excluded.status_4xx,
    status_5xx = usage_hours.status_5xx + excluded.status_5xx
