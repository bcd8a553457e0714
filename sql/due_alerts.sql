-- Those about customers come first: of other clients, there may be very many.
SELECT id, created, attempts, next_attempt, subject, policy, share, receiver, body FROM alerts
WHERE webhook = $1 AND state = 0 AND next_attempt <= $2
ORDER BY CASE WHEN subject LIKE 'customer:%' OR subject LIKE 'api_key:%' THEN 0 ELSE 1 END, next_attempt, id
