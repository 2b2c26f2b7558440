"""Jobs have tags and a note, and may be archived."""

from alembic import op

revision = "0013"
down_revision = "0012"


def upgrade() -> None:
    op.execute(
        "CREATE TABLE annotation ("
        " job_id bigint PRIMARY KEY,"
        " note text,"
        " archived boolean DEFAULT false NOT NULL)"
    )
    op.execute("CREATE INDEX annotation_archived ON annotation (job_id) WHERE archived")
    op.execute(
        "CREATE TABLE job_tag ("
        " job_id bigint NOT NULL,"
        " tag text NOT NULL,"
        " owner text NOT NULL,"
        " PRIMARY KEY (job_id, tag))"
    )
    op.execute("CREATE INDEX job_tag_newest ON job_tag (owner, tag, job_id)")
