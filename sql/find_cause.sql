SELECT id FROM causes
WHERE customer = $1 AND user_name = $2 AND plan = $3 AND kind = $4
  AND policy = $5 AND limit_text = $6 AND route = $7 AND method = $8
