INSERT INTO denials
    (minute, address, cause, count, first_at, last_at, status, path, host, user_agent, request_id)
VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11)
ON CONFLICT (minute, address, cause) DO UPDATE SET
    count = denials.count + excluded.count,
    first_at = CASE WHEN excluded.first_at < denials.first_at THEN excluded.first_at ELSE denials.first_at END,
    last_at = CASE WHEN excluded.last_at > denials.last_at THEN excluded.last_at ELSE denials.last_at END
