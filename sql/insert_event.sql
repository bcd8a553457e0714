INSERT INTO events (time, id, instance, author, action, target, detail) VALUES ($1, $2, $3, $4, $5, $6, $7)
ON CONFLICT DO NOTHING
