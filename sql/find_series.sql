SELECT id FROM series WHERE customer = $1 AND user_name = $2 AND plan = $3 AND route = $4 AND value = $5
