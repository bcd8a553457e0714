-- Messages to webhooks: noted before they are sent, so that one instance sends each. They are forgotten when their window
-- has ended for long. `state`: 0 it is to be sent, 1 it was delivered, 2 it was given up. Times are in seconds.
CREATE TABLE alerts (
    id TEXT NOT NULL,
    webhook TEXT NOT NULL,
    created INTEGER NOT NULL,
    policy TEXT NOT NULL,
    subject TEXT NOT NULL,
    limit_text TEXT NOT NULL,
    share INTEGER NOT NULL,
    used INTEGER NOT NULL,
    window_end INTEGER NOT NULL,
    receiver TEXT NOT NULL,
    body TEXT NOT NULL,
    state INTEGER NOT NULL,
    attempts INTEGER NOT NULL,
    next_attempt INTEGER NOT NULL,
    result TEXT NOT NULL,
    PRIMARY KEY (id, webhook)
) WITHOUT ROWID;
CREATE INDEX alerts_due ON alerts (webhook, next_attempt) WHERE state = 0;
CREATE INDEX alerts_created ON alerts (created);
