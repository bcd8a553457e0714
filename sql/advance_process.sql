-- Changes no row if this batch was added already.
UPDATE processes SET last = $1, watermark = $2, seen = $3, ended = $4 WHERE last < $1 AND id = $5
