INSERT INTO months (zone, month, complete, closed) VALUES ($1, $2, $3, $4)
