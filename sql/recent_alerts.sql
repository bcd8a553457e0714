SELECT id, webhook, created, policy, subject, limit_text, share, used, receiver, state, attempts, result FROM alerts
WHERE (created, id, webhook) < ($1, $2, $3) ORDER BY created DESC, id DESC, webhook DESC
