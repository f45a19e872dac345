"""Keys of pages: everything the rows depend on changes the key, nothing else does."""

from __future__ import annotations

import subprocess
import sys

import pytest

from ds_jax.kvcache.keys import KeyChain, page_key, root
from ds_jax.records import ImageSpan

IDS = tuple(range(1, 11))
CAT, DOG = ImageSpan(2, b"cat"), ImageSpan(2, b"dog")


def keys(
    ids: tuple[int, ...] = IDS,
    tenant: str = "",
    model: bytes = b"m",
    images: tuple[ImageSpan, ...] = (),
) -> list[bytes]:
    return KeyChain(root(model, tenant, 4), 4, images).extend(ids)


def test_only_whole_pages_have_keys() -> None:
    assert len(keys()) == 2
    assert len(keys(IDS[:3])) == 0
    assert keys(IDS[:8]) == keys()


def test_a_growing_sequence_gets_the_same_keys() -> None:
    chain = KeyChain(root(b"m", "", 4), 4)
    for end in range(len(IDS) + 1):
        chain.extend(IDS[:end])
    assert chain.keys == keys()


@pytest.mark.parametrize(
    ("changed", "first"),
    [
        (keys(tenant="b"), 0),
        (keys(model=b"n"), 0),
        (keys((9, *IDS[1:])), 0),
        (keys((*IDS[:7], 99)), 1),
        (keys(images=(CAT,)), 0),
        (keys(images=(ImageSpan(5, b"cat"),)), 1),
    ],
)
def test_the_first_difference_changes_every_key_behind_it(changed: list[bytes], first: int) -> None:
    for number, (a, b) in enumerate(zip(keys(), changed, strict=True)):
        assert (a == b) == (number < first)


def test_image_content_and_place_enter_the_key() -> None:
    assert keys(images=(CAT,)) != keys(images=(DOG,))
    assert keys(images=(CAT,)) != keys(images=(ImageSpan(3, b"cat"),))


def test_a_blank_key_leaves_out_what_the_image_shows() -> None:
    cat = KeyChain(root(b"m", "", 4), 4, (CAT,))
    dog = KeyChain(root(b"m", "", 4), 4, (DOG,))
    cat.extend(IDS)
    dog.extend(IDS)
    assert [cat.blank_key(n) for n in (0, 1)] == [dog.blank_key(n) for n in (0, 1)]


def test_parts_of_a_root_cannot_be_shifted() -> None:
    assert root(b"ab", "c", 4) != root(b"a", "bc", 4)
    assert root(b"a", "", 4) != root(b"a", "", 8)


def test_keys_are_the_same_in_every_process() -> None:
    code = (
        "from ds_jax.kvcache.keys import page_key, root\n"
        "print(page_key(root(b'm', 't', 4), (1, 2, 3, 4), 0, ()).hex())"
    )
    command = [sys.executable, "-c", code]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == page_key(root(b"m", "t", 4), (1, 2, 3, 4), 0, ()).hex()
