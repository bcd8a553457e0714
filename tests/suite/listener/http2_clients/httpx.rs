//! httpx, with h2.

use super::{AT_ONCE, Served, check};
use crate::harness::{file_name, python};

/// A GOAWAY, even one that promises to answer what is under way, fails every request of the connection, since h2 4.4.1 takes
/// no frame behind it, and httpcore 1.0.9 sees it only once it waits for the next answer. So one request fails here, as it
/// would with any server that goes away so; the others are served by another connection.
const CLIENT: &str = r#"
import asyncio, hashlib, json, ssl, sys
import httpx

url, ca, at_once = sys.argv[1], sys.argv[2], int(sys.argv[3])
context = ssl.create_default_context(cafile=ca)
seen = {}

async def main():
    options = dict(base_url=url, verify=context, trust_env=False, timeout=60)
    async with httpx.AsyncClient(http2=True, **options) as client, httpx.AsyncClient(**options) as other:
        download = await client.get("/download")
        assert download.http_version == "HTTP/2", download.http_version
        seen["download"] = hashlib.sha256(download.content).hexdigest()

        async def pieces():
            for at in range(0, len(download.content), 100_000):
                yield download.content[at:at + 100_000]

        seen["upload"] = (await client.post("/upload", content=pieces())).text
        answers = await asyncio.gather(*(client.get(f"/number/{number}") for number in range(at_once)))
        seen["numbers"] = sum(answer.text == str(number) for number, answer in enumerate(answers))
        denied = [await client.get("/limited") for _ in range(3)][-1]
        seen["denied"] = {
            "status": denied.status_code, "type": denied.headers["content-type"], "body": denied.json(),
            "retry_after": denied.headers["retry-after"], "ratelimit": denied.headers["ratelimit"],
        }
        # Trailers are beyond it: what stands before them is there.
        assert (await client.get("/trailers", headers={"te": "trailers"})).text == "hello"
        seen["held"] = (await other.get("/held")).text
        seen["after"] = seen["failed"] = 0
        for number in range(50):
            try:
                answer = await client.get(f"/number/{number}")
            except httpx.ProtocolError:
                seen["failed"] += 1
                answer = await client.get(f"/number/{number}")
            seen["after"] += answer.http_version == "HTTP/2" and answer.text == str(number)

asyncio.run(main())
print(json.dumps(seen))
"#;

#[test]
fn httpx_is_served() {
    let mut served = Served::start();
    let seen = served.hand_over_during(|served| {
        let authority = served.authority.file();
        python(CLIENT, &[&served.url(""), file_name(&authority), &AT_ONCE.to_string()])
    });
    let Some(seen) = seen else { return };
    let seen = serde_json::from_str(&seen).unwrap();
    check(&served, &seen);
    assert!(seen["failed"].as_u64().unwrap() <= 1, "{seen}");
}
