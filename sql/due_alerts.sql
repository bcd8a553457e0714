SELECT id, created, attempts, next_attempt, subject, policy, share, body FROM alerts
WHERE webhook = $1 AND state = 0 AND next_attempt <= $2 ORDER BY next_attempt
