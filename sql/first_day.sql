SELECT MIN(d.day) FROM usage_days d JOIN zones z ON z.id = d.zone WHERE z.name = $1
