INSERT INTO series (customer, user_name, plan, route, value) VALUES ($1, $2, $3, $4, $5) ON CONFLICT DO NOTHING
