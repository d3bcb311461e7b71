"""A server on pyroute2's 9P2000: what is in a directory of this host, copied into memory.

usage: serve.py HOST PORT DIRECTORY
"""

import asyncio
import io
import os
import sys

from pyroute2 import Plan9ServerSocket


def fill(filesystem, directory):
    for place, _, names in os.walk(directory):
        inside = os.path.relpath(place, directory)
        inside = "" if inside == "." else inside
        if inside:
            filesystem.create(inside, qtype=0x80)
        for name in names:
            inode = filesystem.create(os.path.join(inside, name))
            with open(os.path.join(place, name), "rb") as file:
                inode.data = io.BytesIO(file.read())
            inode.sync()


async def main(host, port, directory):
    server = Plan9ServerSocket(address=(host, int(port)))
    fill(server.filesystem, directory)
    task = await server.async_run()
    await task


asyncio.run(main(*sys.argv[1:]))
