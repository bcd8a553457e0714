INSERT INTO usage_months (zone, month, late, series, requests, denied, status_1xx, status_3xx, status_4xx, status_5xx)
VALUES ($1, $2, 1, $3, $4, $5, $6, $7, $8, $9)
ON CONFLICT (zone, month, late, series) DO UPDATE SET
    requests = usage_months.requests + excluded.requests,
    denied = usage_months.denied + excluded.denied,
    status_1xx = usage_months.status_1xx + excluded.status_1xx,
    status_3xx = usage_months.status_3xx + excluded.status_3xx,
    status_4xx = usage_months.status_4xx + excluded.status_4xx,
    status_5xx = usage_months.status_5xx + excluded.status_5xx
