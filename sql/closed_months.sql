SELECT zone, month FROM months
