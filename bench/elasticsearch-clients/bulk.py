"""Writes numbered documents with the official client: bulk.py ADDRESS FIRST COUNT. The name of the user is `agent`, the password `secret`."""

import sys
import warnings

from elasticsearch import Elasticsearch, __versionstr__, helpers

warnings.simplefilter("ignore")
address, first, count = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
major = int(__versionstr__.split(".")[0])
auth = {"http_auth" if major < 8 else "basic_auth": ("agent", "secret")}
client = Elasticsearch(address, http_compress=True, **auth)

assert client.ping()
assert client.info()["tagline"] == "You Know, for Search"
assert client.cluster.health()["status"] == "green"
assert not client.indices.exists(index="python")
assert client.indices.create(index="python")["acknowledged"]
assert not client.indices.exists_index_template(name="python")
body = {"index_patterns": ["python*"]}
template = {"body": body} if major < 8 else body
assert client.indices.put_index_template(name="python", **template)["acknowledged"]

# Half of them through the helper for lists, half through the one for streams, a few with ids.
actions = [
    {"_op_type": "create" if n % 2 else "index", "_index": "python", "n": n, **({"_id": f"python-{n}"} if n % 3 == 0 else {})}
    for n in range(first, first + count - 1)
]
half = len(actions) // 2
done, errors = helpers.bulk(client, actions[:half], chunk_size=500)
assert (done, errors) == (half, []), errors
for ok, item in helpers.streaming_bulk(client, actions[half:], chunk_size=100):
    assert ok and next(iter(item.values()))["_id"], item
document = {"n": first + count - 1}
single = client.index(index="python", **({"body": document} if major < 8 else {"document": document}))
assert single["result"] == "created"

# Operations that need stored documents fail one by one.
try:
    helpers.bulk(client, [{"_op_type": "delete", "_index": "python", "_id": "1"}])
    raise SystemExit("a delete was taken")
except helpers.BulkIndexError as error:
    assert error.errors[0]["delete"]["status"] == 400, error.errors
print(__versionstr__)
