INSERT INTO causes (customer, user_name, plan, kind, policy, limit_text, route, method)
VALUES ($1, $2, $3, $4, $5, $6, $7, $8) ON CONFLICT DO NOTHING
