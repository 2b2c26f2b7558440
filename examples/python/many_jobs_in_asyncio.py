"""Submit a project several times from asyncio, follow one log, and wait for all.

Start `forge up` first; then run `python examples/python/many_jobs_in_asyncio.py FOLDER`.
"""

import asyncio
import sys

from forge_client import AsyncClient


async def main(folder: str) -> None:
    """Submit three jobs and print what they found."""
    async with AsyncClient() as client:
        jobs = [
            await client.submit(folder, "python train.py", name=f"try-{n}", env={"SEED": str(n)})
            for n in range(3)
        ]
        async for text in jobs[0].logs(follow=True):
            print(text, end="")
        print(await asyncio.gather(*jobs))


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1]))
