-- Whose usage, and what for.
CREATE TABLE series (
    id INTEGER PRIMARY KEY,
    customer TEXT NOT NULL,
    user_name TEXT NOT NULL,
    plan TEXT NOT NULL,
    route TEXT NOT NULL,
    value TEXT NOT NULL,
    UNIQUE (customer, user_name, plan, route, value)
);
CREATE TABLE policies (id INTEGER PRIMARY KEY, name TEXT NOT NULL UNIQUE);
CREATE TABLE zones (id INTEGER PRIMARY KEY, name TEXT NOT NULL UNIQUE);

-- Requests, by hours of UTC. Those with a status of 2xx are the rest.
CREATE TABLE usage_hours (
    hour INTEGER NOT NULL,
    series INTEGER NOT NULL,
    requests INTEGER NOT NULL,
    denied INTEGER NOT NULL,
    status_1xx INTEGER NOT NULL,
    status_3xx INTEGER NOT NULL,
    status_4xx INTEGER NOT NULL,
    status_5xx INTEGER NOT NULL,
    PRIMARY KEY (hour, series)
) WITHOUT ROWID;
CREATE TABLE unit_hours (
    hour INTEGER NOT NULL,
    series INTEGER NOT NULL,
    policy INTEGER NOT NULL,
    units INTEGER NOT NULL,
    PRIMARY KEY (hour, series, policy)
) WITHOUT ROWID;
-- The same by days of a time zone, since 1970-01-01.
CREATE TABLE usage_days (
    zone INTEGER NOT NULL,
    day INTEGER NOT NULL,
    series INTEGER NOT NULL,
    requests INTEGER NOT NULL,
    denied INTEGER NOT NULL,
    status_1xx INTEGER NOT NULL,
    status_3xx INTEGER NOT NULL,
    status_4xx INTEGER NOT NULL,
    status_5xx INTEGER NOT NULL,
    PRIMARY KEY (zone, day, series)
) WITHOUT ROWID;
CREATE TABLE unit_days (
    zone INTEGER NOT NULL,
    day INTEGER NOT NULL,
    series INTEGER NOT NULL,
    policy INTEGER NOT NULL,
    units INTEGER NOT NULL,
    PRIMARY KEY (zone, day, series, policy)
) WITHOUT ROWID;

-- Months that are closed: year * 12 + month - 1.
CREATE TABLE months (
    zone INTEGER NOT NULL,
    month INTEGER NOT NULL,
    complete INTEGER NOT NULL,
    closed INTEGER NOT NULL,
    PRIMARY KEY (zone, month)
) WITHOUT ROWID;
-- Their sums when they were closed (late = 0), and what came later (late = 1).
CREATE TABLE usage_months (
    zone INTEGER NOT NULL,
    month INTEGER NOT NULL,
    late INTEGER NOT NULL,
    series INTEGER NOT NULL,
    requests INTEGER NOT NULL,
    denied INTEGER NOT NULL,
    status_1xx INTEGER NOT NULL,
    status_3xx INTEGER NOT NULL,
    status_4xx INTEGER NOT NULL,
    status_5xx INTEGER NOT NULL,
    PRIMARY KEY (zone, month, late, series)
) WITHOUT ROWID;
CREATE TABLE unit_months (
    zone INTEGER NOT NULL,
    month INTEGER NOT NULL,
    late INTEGER NOT NULL,
    series INTEGER NOT NULL,
    policy INTEGER NOT NULL,
    units INTEGER NOT NULL,
    PRIMARY KEY (zone, month, late, series, policy)
) WITHOUT ROWID;

-- Why requests were denied, and whose.
CREATE TABLE causes (
    id INTEGER PRIMARY KEY,
    customer TEXT NOT NULL,
    user_name TEXT NOT NULL,
    plan TEXT NOT NULL,
    kind TEXT NOT NULL,
    policy TEXT NOT NULL,
    limit_text TEXT NOT NULL,
    route TEXT NOT NULL,
    method TEXT NOT NULL,
    UNIQUE (customer, user_name, plan, kind, policy, limit_text, route, method)
);
-- By minutes. The last columns are of one of the requests.
CREATE TABLE denials (
    minute INTEGER NOT NULL,
    address TEXT NOT NULL,
    cause INTEGER NOT NULL,
    count INTEGER NOT NULL,
    first_at INTEGER NOT NULL,
    last_at INTEGER NOT NULL,
    status INTEGER NOT NULL,
    path TEXT NOT NULL,
    host TEXT NOT NULL,
    user_agent TEXT NOT NULL,
    request_id TEXT NOT NULL,
    PRIMARY KEY (minute, address, cause)
) WITHOUT ROWID;
CREATE INDEX denials_by_request ON denials (request_id) WHERE request_id <> '';

CREATE TABLE events (
    time INTEGER NOT NULL,
    id TEXT NOT NULL,
    instance TEXT NOT NULL,
    author TEXT NOT NULL,
    action TEXT NOT NULL,
    target TEXT NOT NULL,
    detail TEXT NOT NULL,
    PRIMARY KEY (time, id)
) WITHOUT ROWID;

-- The processes that have written here, and the number of their last batch.
CREATE TABLE processes (
    id TEXT PRIMARY KEY,
    started INTEGER NOT NULL,
    last INTEGER NOT NULL,
    watermark INTEGER NOT NULL,
    seen INTEGER NOT NULL,
    ended INTEGER NOT NULL
) WITHOUT ROWID;
