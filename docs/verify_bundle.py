#!/usr/bin/env python3
"""Verifies an evidence bundle of Counterfoil, as docs/evidence.md describes it. Needs nothing but Python; shares no code with Counterfoil.

    verify_bundle.py FILE KEY…      KEY: a public key that you trust, as 64 hex digits

Prints what does not hold, line by line, and exits with 1; or one line and 0."""
import bisect, hashlib, json, sys

P, L = 2**255 - 19, 2**252 + 27742317777372353535851937790883648493
D = -121665 * pow(121666, -1, P) % P

def recover(y, sign):
    """The x that belongs to y, or None."""
    square = (y * y - 1) * pow(D * y * y + 1, -1, P) % P
    x = pow(square, (P + 3) // 8, P)
    if (x * x - square) % P:
        x = x * pow(2, (P - 1) // 4, P) % P
    if y >= P or (x * x - square) % P or (x == 0 and sign):
        return None
    return P - x if x & 1 != sign else x

def add(p, q):
    a, b = (p[1] - p[0]) * (q[1] - q[0]) % P, (p[1] + p[0]) * (q[1] + q[0]) % P
    c, d = 2 * p[3] * q[3] * D % P, 2 * p[2] * q[2] % P
    e, f, g, h = b - a, d - c, d + c, b + a
    return e * f % P, g * h % P, f * g % P, e * h % P

def times(n, p):
    q = (0, 1, 1, 0)
    while n:
        q, p, n = add(q, p) if n & 1 else q, add(p, p), n >> 1
    return q

def point(data):
    sign, y = divmod(int.from_bytes(data, "little"), 1 << 255)
    x = recover(y, sign)
    return None if x is None else (x, y, 1, x * y % P)

BASE = point((4 * pow(5, -1, P) % P).to_bytes(32, "little"))

def signed(key, message, signature):
    key, signature = bytes.fromhex(key), bytes.fromhex(signature)
    a, r, s = point(key), point(signature[:32]), int.from_bytes(signature[32:], "little")
    if len(key) != 32 or len(signature) != 64 or not a or not r or s >= L:
        return False
    h = int.from_bytes(hashlib.sha512(signature[:32] + key + message.encode()).digest(), "little") % L
    left, right = times(s, BASE), add(r, times(h, a))
    return (left[0] * right[2] - right[0] * left[2]) % P == 0 and (left[1] * right[2] - right[1] * left[2]) % P == 0

def H(text):
    return hashlib.sha256(text.encode() if isinstance(text, str) else text).hexdigest()

def F(tag, *fields):
    """Over the tag and the fields, each behind its length."""
    fields = [f.encode() if isinstance(f, str) else f for f in (tag, *fields)]
    return H(b"".join(len(field).to_bytes(8, "big") + field for field in fields))

def root(leaves, low, high, hashes):
    """The root above the leaves low to high: of those that are known, and of hashes for the subtrees without any."""
    if not leaves:
        return next(hashes)
    if high - low == 1:
        return leaves[0][1]
    middle = low + (1 << (high - low - 1).bit_length() - 1)
    split = bisect.bisect_left(leaves, (middle,))
    left, right = root(leaves[:split], low, middle, hashes), root(leaves[split:], middle, high, hashes)
    return hashlib.sha256(b"\1" + left + right).digest()

def members(text):
    """The members of an object, or the items of a list, each as its text, byte for byte."""
    at, found, decoder = 1, {}, json.JSONDecoder()
    while text[at] not in "]}":
        name = len(found)
        if text[0] == "{":
            name, at = decoder.raw_decode(text, at)
            at += 1
        _, end = decoder.raw_decode(text, at)
        found[name] = text[at:end]
        at = end + (text[end] == ",")
    return found

def end_of(entry):
    """What the receipt of this entry must say: (id, outcome, text of the result or None for any, by, why); None: it ends nothing."""
    (name, raw), = members(entry).items()
    value, parts = json.loads(raw), members(raw)
    by, why = value.get("by"), value.get("why")
    if name in ("denied", "cancelled", "flushed"):
        return value["receipt"], name, why, by, why
    if name == "resolved":
        if isinstance(value["verdict"], str):
            return value["receipt"], "resolved_" + value["verdict"], why, by, why
        return value["receipt"], "resolved_happened", members(members(parts["verdict"])["happened"])["result"], by, why
    if name == "undo_finished":
        return value["receipt"], "undo_failed" if value["failure"] else "undone", parts["failure"] if value["failure"] else None, None, None
    if name not in ("finished", "late", "probed"):
        return None
    outcome = parts["answer" if name == "probed" else "outcome"]
    if outcome[0] != "{":
        return None
    (how, said), = members(outcome).items()
    inside = members(said) if said[0] == "{" else {}
    if name == "late":
        return value["receipt"], "late_" + how, inside["result"] if how == "done" else said, None, None
    if "receipt" not in inside:
        return None
    text = inside["result"] if name == "probed" else members(inside["success"])["result"] if how == "done" else inside["failure"]
    word = "probed_happened" if name == "probed" else "retry_exhausted" if how == "retry" else how
    return json.loads(inside["receipt"]), word, text, None, None

PARTS = ["bundle", "definition", "record", "tombstone", "receipt", "proof", "head", "seal"]

def verify(data, trusted):
    faults, parts, last, furthest = [], {part: [] for part in PARTS}, "0" * 64, 0
    bad = lambda line, problem: faults.append(f"line {line}: {problem}")
    if not data.endswith(b"\n"):
        bad("at the end", "the last line has no newline: the file was cut")
    for n, raw in enumerate(data.removesuffix(b"\n").split(b"\n"), 1):
        try:
            line = json.loads(raw.decode())
            (part,) = set(line) - {"line", "prev"}
            if line["line"] != n:
                bad(n, f"it says that it is line {line['line']}: lines are missing, doubled or moved")
            if line["prev"] != last:
                bad(n - 1, f"its hash is {last}, and line {n} says {line['prev']}: it was changed, or is another one")
            if PARTS.index(part) < furthest:
                bad(n, f"a {part} behind a {PARTS[furthest]}")
            furthest = max(furthest, PARTS.index(part))
            parts[part].append((n, line[part], line["prev"]))
        except (ValueError, KeyError, TypeError) as error:
            bad(n, f"it cannot be read: {error!r}")
        last = H(raw)
    needed = ["bundle", "seal"] + (["proof", "head"] if parts["receipt"] else [])
    for part in ["bundle", "definition", "proof", "head", "seal"]:
        if len(parts[part]) > 1 or (not parts[part] and part in needed):
            bad("(none)", f"{len(parts[part])} parts {part}, and there must be one")
    if faults:
        return faults
    at, manifest, _ = parts["bundle"][0]
    for part in ["record", "tombstone", "receipt"]:
        if manifest[part + "s"] != len(parts[part]):
            bad(at, f"it says that there are {manifest[part + 's']} {part}s, and there are {len(parts[part])}")
    at, seal, over = parts["seal"][0]
    if seal["key"] not in trusted or not signed(seal["key"], f"counterfoil/bundle/1\n{over}\n", seal["signature"]):
        bad(at, "the seal is not by a key you trust, or is not over this bundle")
    # Nothing follows it that has its hash: it must have its one form.
    if raw.decode() != f'{{"line":{at},"prev":"{over}","seal":{{"key":"{seal["key"]}","signature":"{seal["signature"].lower()}"}}}}':
        bad(at, "the seal is not written as it should be")
    ends, versions, opened, seq, prev, leaves = {}, {}, {}, 0, "0" * 64, []
    for at, record, _ in parts["record"]:
        stream, version = record["stream"], record["version"]
        if version != versions.get(stream, 0) + 1:
            bad(at, f"record {versions.get(stream, 0) + 1} of {record['of']} {stream} is expected here")
        versions[stream] = version
        for entry in members(record["body"][1:]).values():
            (name, raw), = members(entry).items()
            if name == "run_started" and parts["definition"] and H(parts["definition"][0][1]["text"]) != json.loads(raw)["definition"]:
                bad(parts["definition"][0][0], "it is not the definition that the run began with")
            if record["of"] == "effect":
                opened[stream] = members(raw) if name == "opened" else opened[stream]
                if end := end_of(entry):
                    id = F("counterfoil/receipt-id/1", bytes.fromhex(stream), version.to_bytes(8, "big"))
                    spec = F("counterfoil/spec/1", json.loads(opened[stream]["tool"]), opened[stream]["args"])
                    ends[end[0]] = (at, [id, stream, spec, end[1], end[3]], end[2], end[4])
    buried = {tombstone["effect"] for _, tombstone, _ in parts["tombstone"]}
    for at, line, _ in parts["receipt"]:
        receipt = json.loads(line["text"])
        if manifest.get("run") and (receipt["seq"], receipt["prev"]) != (seq + 1, prev):
            bad(at, f"receipt {receipt['seq']} does not follow receipt {seq}")
        seq, prev = receipt["seq"], H(line["text"])
        if receipt["tenant"] != manifest["tenant"] or (manifest.get("run") or receipt.get("run")) != receipt.get("run"):
            bad(at, "it is another tenant's, or another run's")
        _, end, text, why = ends.pop(receipt["id"], (at, None, None, None))
        same = end == [receipt.get(name) for name in ("id", "effect", "spec", "outcome", "by")]
        if end and not (same and (text is None or receipt["result"] == H(text)) and receipt.get("why") in (None, why and H(why))):
            bad(at, f"receipt {receipt['seq']} does not say what the entry that it is of says")
        if not end and receipt["effect"] not in buried:
            bad(at, f"receipt {receipt['seq']} is of no end here")
        leaves.append((line["leaf"], hashlib.sha256(b"\0" + line["text"].encode()).digest()))
    for at, *_ in ends.values():
        bad(at, "it ends an effect, and there is no receipt of that")
    if leaves:
        (proof_at, proof, _), (at, head, _) = parts["proof"][0], parts["head"][0]
        if not signed(head["key"], f"counterfoil/head/1\n{head['size']}\n{head['root']}\n{head['at']}\n", head["signature"]):
            bad(at, "the head is not signed by the key it names")
        hashes = iter([bytes.fromhex(digest) for digest in proof["hashes"]])
        ascending = all(a[0] < b[0] for a, b in zip(leaves, leaves[1:])) and leaves[-1][0] < head["size"]
        if not ascending or root(leaves, 0, head["size"], hashes).hex() != head["root"] or next(hashes, None) is not None:
            bad(proof_at, "it does not lead from the receipts to the root of the head")
    return faults

if __name__ == "__main__":
    if len(sys.argv) < 3:
        sys.exit(__doc__)
    try:
        found = verify(open(sys.argv[1], "rb").read(), sys.argv[2:])
    except (ValueError, KeyError, TypeError, AttributeError, IndexError, StopIteration) as error:
        found = [f"line unknown: what is in it makes no sense: {error!r}"]
    print("\n".join(found) or "every link holds")
    sys.exit(bool(found))
