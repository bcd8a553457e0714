-- Changes no row if another instance was faster.
UPDATE alerts SET next_attempt = $1, attempts = attempts + 1
WHERE id = $2 AND webhook = $3 AND state = 0 AND next_attempt = $4
