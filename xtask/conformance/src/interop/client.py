"""What the table asks for, by pyroute2's client of 9P2000, which has words for reading only.

usage: client.py ADDRESS ANAME BASE DIR WRITTEN NESTED ID; prints "@ok STEP" or "@no STEP WHY".
"""

import asyncio
import sys

from pyroute2 import Plan9ClientSocket
from pyroute2.plan9 import Stat, msg_topen

PIECE = 8000


async def step(what, body):
    try:
        await asyncio.wait_for(body, 10)
    except Exception as error:
        text = f"{type(error).__name__}: {error}".replace("\n", "; ")
        print(f"@no {what} {text}", flush=True)
        return False
    print(f"@ok {what}", flush=True)
    return True


async def content(client, path):
    fid = await client.fid(path.strip("/"))
    # It reads without opening, which only its own server allows.
    message = msg_topen()
    message["fid"], message["mode"] = fid, 0
    await client.request(message)
    data = bytearray()
    while True:
        answer = await client.read(fid, len(data), PIECE)
        if not answer["data"]:
            return data
        data += answer["data"]


async def same(client, path, host):
    with open(host, "rb") as file:
        wanted = file.read()
    got = await content(client, path)
    if got != wanted:
        raise ValueError(f"{len(got)} bytes of {len(wanted)}, or others")


async def listed(client, path):
    data, offset, names = await content(client, path), 0, set()
    while offset < len(data):
        stat, offset = Stat.decode_from(data, offset)
        names.add(stat["name"])
    if len(names) != 200:
        raise ValueError(f"{len(names)} names")


async def main(address, _aname, base, directory, _written, nested, _name):
    host, port = address.split(":")
    client = Plan9ClientSocket(address=(host, int(port)))
    if await step("attach", client.start_session()):
        await step("list", listed(client, f"{base}/list"))
        await step("read", same(client, f"{base}/big", f"{directory}/big"))
        await step("nested", same(client, f"{base}/{nested}", f"{directory}/{nested}"))


asyncio.run(main(*sys.argv[1:]))
