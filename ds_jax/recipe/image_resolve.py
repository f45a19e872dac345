"""From the image sources of a conversation to images for the model.

Decides the order in which sources are read and refused, the limits of a request, and what is tried
again. Never talks to a network itself (image_fetch) and never decodes (image_preprocess). In: image
sources and a quota. Out: `MultiModalData`.
"""

from __future__ import annotations

import collections
import contextlib
import dataclasses
import functools
import itertools
from collections.abc import Callable, Generator, Iterable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TypeVar

from ds_jax.recipe import arguments, data_url, image_errors, image_rules
from ds_jax.recipe.image_connection import Deadline
from ds_jax.recipe.image_errors import MIB, Fault, ImageError
from ds_jax.recipe.image_fetch import ReqwestImageFetcher
from ds_jax.recipe.image_preprocess import ImageInfo, OpenCvImagePreprocessor, PreprocessOptions
from ds_jax.recipe.image_source import ImageSource
from ds_jax.recipe.images import ImageQuota, MultiModalData

MAX_IMAGES = 600
MAX_FILE_BYTES = 32 * MIB
MAX_TOTAL_BYTES = 64 * MIB
MAX_SIDE_PIXELS = 8192
LOW_DETAIL_SIDE_PIXELS = 512

_PARALLEL = 8
_ALL_DOWNLOADS_S = 300.0
_RETRY_DELAYS_S = (0.3, 0.6, 1.0)

T = TypeVar("T")
R = TypeVar("R")


class ImageResolver:
    """Reads, fetches and prepares the images of a request.

    All sources are read first (data URLs decoded, links fetched, up to 8 at a time), then all
    images are prepared. Of several failures the one of the first source is reported; a failure to
    read comes before any failure to prepare.
    """

    __slots__ = ("_fetcher", "_preprocessor", "_retry_delays_s")

    def __init__(
        self,
        fetcher: ReqwestImageFetcher,
        preprocessor: OpenCvImagePreprocessor,
        *,
        retry_delays_s: Sequence[float] = _RETRY_DELAYS_S,
    ) -> None:
        """Combines the parts.

        Args:
          fetcher: for links.
          preprocessor: for everything.
          retry_delays_s: pauses before a link that did not answer is tried again.
        """
        self._fetcher = arguments.record("fetcher", fetcher, ReqwestImageFetcher)
        self._preprocessor = arguments.record("preprocessor", preprocessor, OpenCvImagePreprocessor)
        self._retry_delays_s = tuple(retry_delays_s)

    def resolve(self, sources: Sequence[ImageSource], quota: ImageQuota) -> MultiModalData:
        """Turns sources into images and counts them.

        Args:
          sources: what `RenderedPrompt.image_sources` lists.
          quota: of the request. Mutated, unless the call fails.

        Returns:
          One image for each source, in the same order.

        Raises:
          ImageError: `image_errors.Kind` lists the cases. Refused are more than 600 images in a
            request, a file of more than 32 MiB, more than 64 MiB together, a side of more than 8192
            pixels and a link of more than 8192 bytes.
          CalcResizeError: an image has a size that cannot be planned.
        """
        given = arguments.records("sources", sources, ImageSource)
        arguments.record("quota", quota, ImageQuota)
        num_images = quota.image_count() + len(given)
        if num_images > MAX_IMAGES:
            raise image_errors.too_many(MAX_IMAGES, num_images)
        placed = _placed(given)
        files = self._read(placed, quota.byte_size())
        images = MultiModalData(self._prepare(placed, files))
        quota.add(len(files), sum(map(len, files)))
        return images

    def _read(self, placed: Sequence[_Placed], used: int) -> list[bytes]:
        """The files of all sources, which together with `used` bytes are not too large."""
        deadline = Deadline(_ALL_DOWNLOADS_S)
        load = functools.partial(self._linked, deadline=deadline)
        links = [place.source for place in placed if place.source.url is not None]
        files: list[bytes] = []
        with contextlib.closing(_in_order(load, links)) as downloads:
            try:
                for place in placed:
                    data = _file(place, lambda: next(downloads))
                    used += len(data)
                    if used > MAX_TOTAL_BYTES:
                        raise _total_too_large(place, used)
                    files.append(data)
            finally:
                deadline.cancel()
        return files

    def _linked(self, source: ImageSource, deadline: Deadline) -> bytes:
        """The file behind a link, in a few attempts."""
        url = source.url or ""
        if not image_rules.is_link(url):
            raise image_errors.invalid_url(url, source.path)
        num_bytes = image_rules.link_length(url)
        if num_bytes > image_rules.MAX_URL_BYTES:
            raise image_errors.url_too_long(num_bytes, source.path)
        delays = iter(self._retry_delays_s)
        while True:
            try:
                return self._fetcher.download(url, MAX_FILE_BYTES, deadline)
            except Fault as fault:
                if fault.kind == "ImageTooLarge":
                    raise image_errors.not_fetched(url, again=False) from None
                delay = next(delays, None)
                if not fault.again or delay is None or not deadline.pause(delay):
                    raise

    def _prepare(self, placed: Sequence[_Placed], files: Sequence[bytes]) -> list[ImageInfo]:
        """The images of the files; equal files are prepared once."""
        keys = [(_options(place.source), data) for place, data in zip(placed, files, strict=True)]
        firsts = {key: index for index, key in reversed(list(enumerate(keys)))}
        indices = sorted(firsts.values())

        def one(index: int) -> ImageInfo:
            options, data = keys[index]
            try:
                return self._preprocessor.prepare(data, options)
            except Fault as fault:
                raise placed[index].error(fault) from None

        with contextlib.closing(_in_order(one, indices)) as prepared:
            done = dict(zip(indices, prepared, strict=True))
        return [done[firsts[key]] for key in keys]


@dataclasses.dataclass(frozen=True, slots=True)
class _Placed:
    """A source, and which of the sources at its place in the request it is."""

    source: ImageSource
    number: int

    def error(self, fault: Fault) -> ImageError:
        return fault.at(self.source.path, self.number)


def _placed(sources: Sequence[ImageSource]) -> list[_Placed]:
    counts: collections.Counter[str] = collections.Counter()
    placed: list[_Placed] = []
    for source in sources:
        placed.append(_Placed(source, counts[source.path]))
        counts[source.path] += 1
    return placed


def _options(source: ImageSource) -> PreprocessOptions:
    return PreprocessOptions(source.detail, MAX_SIDE_PIXELS, LOW_DETAIL_SIDE_PIXELS)


def _file(place: _Placed, downloaded: Callable[[], bytes]) -> bytes:
    """The file of one source, not empty."""
    source = place.source
    try:
        if source.url is not None:
            data = downloaded()
        elif source.data_url is not None:
            data = data_url.image_bytes(source.data_url)
        else:
            data = source.data or b""
        if not data:
            raise Fault("EmptyImage")
        if len(data) > MAX_FILE_BYTES:
            raise image_errors.too_large(MAX_FILE_BYTES)
        return data
    except Fault as fault:
        raise place.error(fault) from None


def _total_too_large(place: _Placed, used: int) -> ImageError:
    """The error when the files up to `place` have `used` bytes; a link just counts as failed."""
    if place.source.url is not None:
        return place.error(image_errors.not_fetched(place.source.url, again=False))
    return image_errors.total_too_large(MAX_TOTAL_BYTES, used)


def _in_order(job: Callable[[T], R], items: Iterable[T]) -> Generator[R, None, None]:
    """`job` of each item, in order; a few run ahead of the one that is waited for.

    Nothing starts before the first result is asked for. What still waits when the generator is
    closed never starts.
    """
    waiting = iter(items)
    pending: collections.deque[Future[R]] = collections.deque()
    pool = ThreadPoolExecutor(_PARALLEL, thread_name_prefix="image")
    try:
        pending.extend(pool.submit(job, item) for item in itertools.islice(waiting, _PARALLEL))
        while pending:
            yield pending.popleft().result()
            pending.extend(pool.submit(job, item) for item in itertools.islice(waiting, 1))
    finally:
        pool.shutdown(wait=False, cancel_futures=True)
