INSERT INTO processes (id, started, last, watermark, seen, ended) VALUES ($1, $2, 0, 0, $3, 0)
ON CONFLICT DO NOTHING
