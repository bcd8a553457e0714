-- Changes no row if an instance has noted it before.
INSERT INTO alerts
    (id, webhook, created, policy, subject, limit_text, share, used, window_end, receiver, body,
     state, attempts, next_attempt, result)
VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, 0, 0, $12, '')
ON CONFLICT DO NOTHING
