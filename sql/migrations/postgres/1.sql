-- Whose usage, and what for.
CREATE TABLE series (
    id BIGINT GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    customer TEXT NOT NULL,
    user_name TEXT NOT NULL,
    plan TEXT NOT NULL,
    route TEXT NOT NULL,
    value TEXT NOT NULL,
    UNIQUE (customer, user_name, plan, route, value)
);
CREATE TABLE policies (id BIGINT GENERATED ALWAYS AS IDENTITY PRIMARY KEY, name TEXT NOT NULL UNIQUE);
CREATE TABLE zones (id BIGINT GENERATED ALWAYS AS IDENTITY PRIMARY KEY, name TEXT NOT NULL UNIQUE);

-- Requests, by hours of UTC. Those with a status of 2xx are the rest.
CREATE TABLE usage_hours (
    hour BIGINT NOT NULL,
    series BIGINT NOT NULL,
    requests BIGINT NOT NULL,
    denied BIGINT NOT NULL,
    status_1xx BIGINT NOT NULL,
    status_3xx BIGINT NOT NULL,
    status_4xx BIGINT NOT NULL,
    status_5xx BIGINT NOT NULL,
    PRIMARY KEY (hour, series)
);
CREATE TABLE unit_hours (
    hour BIGINT NOT NULL,
    series BIGINT NOT NULL,
    policy BIGINT NOT NULL,
    units BIGINT NOT NULL,
    PRIMARY KEY (hour, series, policy)
);
-- The same by days of a time zone, since 1970-01-01.
CREATE TABLE usage_days (
    zone BIGINT NOT NULL,
    day BIGINT NOT NULL,
    series BIGINT NOT NULL,
    requests BIGINT NOT NULL,
    denied BIGINT NOT NULL,
    status_1xx BIGINT NOT NULL,
    status_3xx BIGINT NOT NULL,
    status_4xx BIGINT NOT NULL,
    status_5xx BIGINT NOT NULL,
    PRIMARY KEY (zone, day, series)
);
CREATE TABLE unit_days (
    zone BIGINT NOT NULL,
    day BIGINT NOT NULL,
    series BIGINT NOT NULL,
    policy BIGINT NOT NULL,
    units BIGINT NOT NULL,
    PRIMARY KEY (zone, day, series, policy)
);

-- Months that are closed: year * 12 + month - 1.
CREATE TABLE months (
    zone BIGINT NOT NULL,
    month BIGINT NOT NULL,
    complete BIGINT NOT NULL,
    closed BIGINT NOT NULL,
    PRIMARY KEY (zone, month)
);
-- Their sums when they were closed (late = 0), and what came later (late = 1).
CREATE TABLE usage_months (
    zone BIGINT NOT NULL,
    month BIGINT NOT NULL,
    late BIGINT NOT NULL,
    series BIGINT NOT NULL,
    requests BIGINT NOT NULL,
    denied BIGINT NOT NULL,
    status_1xx BIGINT NOT NULL,
    status_3xx BIGINT NOT NULL,
    status_4xx BIGINT NOT NULL,
    status_5xx BIGINT NOT NULL,
    PRIMARY KEY (zone, month, late, series)
);
CREATE TABLE unit_months (
    zone BIGINT NOT NULL,
    month BIGINT NOT NULL,
    late BIGINT NOT NULL,
    series BIGINT NOT NULL,
    policy BIGINT NOT NULL,
    units BIGINT NOT NULL,
    PRIMARY KEY (zone, month, late, series, policy)
);

-- Why requests were denied, and whose.
CREATE TABLE causes (
    id BIGINT GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
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
    minute BIGINT NOT NULL,
    address TEXT COLLATE "C" NOT NULL,
    cause BIGINT NOT NULL,
    count BIGINT NOT NULL,
    first_at BIGINT NOT NULL,
    last_at BIGINT NOT NULL,
    status BIGINT NOT NULL,
    path TEXT NOT NULL,
    host TEXT NOT NULL,
    user_agent TEXT NOT NULL,
    request_id TEXT NOT NULL,
    PRIMARY KEY (minute, address, cause)
);
CREATE INDEX denials_by_request ON denials (request_id) WHERE request_id <> '';

CREATE TABLE events (
    time BIGINT NOT NULL,
    id TEXT NOT NULL,
    instance TEXT NOT NULL,
    author TEXT NOT NULL,
    action TEXT NOT NULL,
    target TEXT NOT NULL,
    detail TEXT NOT NULL,
    PRIMARY KEY (time, id)
);

-- The processes that have written here, and the number of their last batch.
CREATE TABLE processes (
    id TEXT PRIMARY KEY,
    started BIGINT NOT NULL,
    last BIGINT NOT NULL,
    watermark BIGINT NOT NULL,
    seen BIGINT NOT NULL,
    ended BIGINT NOT NULL
);
