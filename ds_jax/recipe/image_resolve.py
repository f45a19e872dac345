"""From the image sources of a conversation to images for the model.

Decides the order in which sources are read and refused, the limits of a request, and what is tried
again. Never talks to a network itself (image_fetch) and never decodes (image_preprocess). In: image
sources and a quota. Out: `MultiModalData`.
"""

from __future__ import annotations

import contextlib
import functools
import itertools
from collections import deque
from collections.abc import Callable, Generator, Iterable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TypeVar

from ds_jax.recipe import arguments, data_url, image_errors, image_rules
from ds_jax.recipe.image_connection import Deadline
from ds_jax.recipe.image_errors import MIB, Fault
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
        files = self._read(given, quota.byte_size())
        images = MultiModalData(self._prepare(given, files))
        quota.add(len(files), sum(map(len, files)))
        return images

    def _read(self, sources: Sequence[ImageSource], used: int) -> list[bytes]:
        """The files of all sources, which together with `used` bytes are not too large."""
        deadline = Deadline(_ALL_DOWNLOADS_S)
        links = [source for source in sources if source.url is not None]
        load = functools.partial(self._linked, deadline=deadline)
        files: list[bytes] = []
        with contextlib.closing(_in_order(load, links)) as downloads:
            try:
                for number, source in enumerate(sources):
                    data = _file(source, number, lambda: next(downloads))
                    used += len(data)
                    if used > MAX_TOTAL_BYTES:
                        if source.url is not None:
                            fault = image_errors.not_fetched(source.url, again=False)
                            raise fault.at(source.path, number)
                        raise image_errors.total_too_large(MAX_TOTAL_BYTES, used)
                    files.append(data)
            finally:
                deadline.cancel()
        return files

    def _linked(self, source: ImageSource, deadline: Deadline) -> bytes:
        """The file behind a link, in a few attempts."""
        url = source.url or ""
        num_bytes = image_rules.link_length(url)
        if num_bytes > image_rules.MAX_URL_BYTES:
            raise image_errors.url_too_long(num_bytes, source.path)
        if not image_rules.is_link(url):
            raise image_errors.invalid_url(url, source.path)
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

    def _prepare(self, sources: Sequence[ImageSource], files: Sequence[bytes]) -> list[ImageInfo]:
        """The images of the files; equal files are prepared once."""
        keys = [(source.detail, data) for source, data in zip(sources, files, strict=True)]
        firsts = {key: number for number, key in reversed(list(enumerate(keys)))}
        numbers = sorted(firsts.values())

        def one(number: int) -> ImageInfo:
            detail, data = keys[number]
            options = PreprocessOptions(detail, MAX_SIDE_PIXELS, LOW_DETAIL_SIDE_PIXELS)
            try:
                return self._preprocessor.prepare(data, options)
            except Fault as fault:
                raise fault.at(sources[number].path, number) from None

        with contextlib.closing(_in_order(one, numbers)) as prepared:
            done = dict(zip(numbers, prepared, strict=True))
        return [done[firsts[key]] for key in keys]


def _file(source: ImageSource, number: int, downloaded: Callable[[], bytes]) -> bytes:
    """The file of one source, not empty."""
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
        raise fault.at(source.path, number) from None


def _in_order(job: Callable[[T], R], items: Iterable[T]) -> Generator[R, None, None]:
    """`job` of each item, in order; a few run ahead of the one that is waited for.

    Nothing starts before the first result is asked for. What still waits when the generator is
    closed never starts.
    """
    waiting = iter(items)
    pending: deque[Future[R]] = deque()
    pool = ThreadPoolExecutor(_PARALLEL, thread_name_prefix="image")
    try:
        pending.extend(pool.submit(job, item) for item in itertools.islice(waiting, _PARALLEL))
        while pending:
            yield pending.popleft().result()
            pending.extend(pool.submit(job, item) for item in itertools.islice(waiting, 1))
    finally:
        pool.shutdown(wait=False, cancel_futures=True)
