CREATE TABLE tokens (
    name TEXT PRIMARY KEY, digest BLOB UNIQUE NOT NULL, role TEXT NOT NULL, created_at REAL NOT NULL, revoked_at REAL
) WITHOUT ROWID;
CREATE TABLE jobs (
    id INTEGER PRIMARY KEY AUTOINCREMENT, video TEXT NOT NULL, user TEXT NOT NULL, state TEXT NOT NULL,
    message TEXT NOT NULL, num_attempts INTEGER NOT NULL, created_at REAL NOT NULL, changed_at REAL NOT NULL
);
CREATE INDEX jobs_by_state ON jobs (state);
CREATE TABLE edits (
    id INTEGER PRIMARY KEY AUTOINCREMENT, video TEXT NOT NULL, version TEXT, content BLOB, num_steps INTEGER NOT NULL,
    user TEXT NOT NULL, saved_at REAL NOT NULL
);
CREATE INDEX edits_by_video ON edits (video, id);
CREATE TABLE audit (
    id INTEGER PRIMARY KEY AUTOINCREMENT, at REAL NOT NULL, user TEXT NOT NULL, action TEXT NOT NULL,
    subject TEXT NOT NULL, detail TEXT NOT NULL
);
