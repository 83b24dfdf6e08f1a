"""torch.distributed.checkpoint on a store: its file format, with our writers and readers under it.

The format is that of torch's own FileSystemWriter, so torch's tools open a checkpoint folder. The file system below
it writes through the store's checksummed writers: size and sha256 are known as a file is closed, and nothing is
renamed or written twice.
"""

from __future__ import annotations

import os
import pickle
from collections.abc import Callable, Generator
from contextlib import AbstractContextManager, contextmanager
from typing import Any, BinaryIO, cast

from torch.distributed.checkpoint.filesystem import (
    CURRENT_DCP_VERSION,
    FileSystemBase,
    FileSystemReader,
    FileSystemWriter,
)
from torch.distributed.checkpoint.metadata import Metadata
from torch.distributed.checkpoint.storage import WriteResult

from marin.checkpoint.completeness import WrittenFile
from marin.checkpoint.layout import TENSOR_INDEX
from marin.checkpoint.state_folder import FileSink

ROOT = "checkpoint"
"""The only folder of the file system below; what lies in it is addressed by file name."""


class OpenSink:
    """The stream that torch writes to: leaves counting, hashing and closing to the store's writer."""

    def __init__(self, sink: FileSink) -> None:
        self._sink = sink

    def write(self, data: Any) -> int:
        view = memoryview(data).cast("B")
        self._sink.write(view if view.contiguous else bytes(view))  # type: ignore[arg-type]  # any buffer will do
        return len(view)

    def tell(self) -> int:
        return self._sink.size

    def flush(self) -> None: ...

    def close(self) -> None: ...


class StoreFiles(FileSystemBase):
    """The flat folder of one checkpoint: opens its files through two functions and remembers what was written."""

    def __init__(
        self,
        *,
        write: Callable[[str], AbstractContextManager[FileSink]] | None = None,
        read: Callable[[str], BinaryIO] | None = None,
    ) -> None:
        self._write = write
        self._read = read
        self.written: list[WrittenFile] = []

    @contextmanager
    def create_stream(self, path: str | os.PathLike[str], mode: str) -> Generator[Any, None, None]:
        name = os.path.basename(os.fspath(path))
        if mode == "rb":
            if self._read is None:
                raise ValueError(f"{name} is to be read from a checkpoint that is being written")
            with self._read(name) as stream:
                yield stream
            return
        if self._write is None:
            raise ValueError(f"{name} is to be written into a checkpoint that is being read")
        with self._write(name) as sink:
            yield OpenSink(sink)
        self.written.append(WrittenFile(name=name, size=sink.size, sha256=sink.sha256))

    def write(self, name: str, data: bytes) -> None:
        """A whole small file."""
        with self.create_stream(name, "wb") as stream:
            stream.write(data)

    def concat_path(self, path: str | os.PathLike[str], suffix: str) -> str:
        return f"{os.fspath(path)}/{suffix}"

    def rename(self, path: str | os.PathLike[str], new_path: str | os.PathLike[str]) -> None:
        raise NotImplementedError("files of a checkpoint are written under their own names")

    def init_path(self, path: str | os.PathLike[str]) -> str:
        return os.fspath(path)

    def mkdir(self, path: str | os.PathLike[str]) -> None: ...

    @classmethod
    def validate_checkpoint_id(cls, checkpoint_id: str | os.PathLike[str]) -> bool:
        return False

    def exists(self, path: str | os.PathLike[str]) -> bool:
        return False

    def rm_file(self, path: str | os.PathLike[str]) -> None:
        raise NotImplementedError("files of a checkpoint are removed by the checkpoint store")


class StoreWriter(FileSystemWriter):
    """Writes tensors as torch's FileSystemWriter does, one file a rank, and the index under its own name."""

    def __init__(self, files: StoreFiles) -> None:
        super().__init__(ROOT, single_file_per_rank=True, sync_files=False, thread_count=1)
        self.files = files
        self.fs = cast(Any, files)
        self.path = ROOT

    def finish(self, metadata: Metadata, results: list[list[WriteResult]]) -> None:
        """Writes the index: where each piece of each tensor lies."""
        metadata.storage_data = {result.index: result.storage_data for of_rank in results for result in of_rank}
        metadata.storage_meta = self.storage_meta()
        metadata.version = CURRENT_DCP_VERSION
        with self.files.create_stream(f"{ROOT}/{TENSOR_INDEX}", "wb") as stream:
            stream.write(pickle.dumps(metadata))


class StoreReader(FileSystemReader):
    """Reads what StoreWriter (or torch's FileSystemWriter) wrote."""

    def __init__(self, files: StoreFiles) -> None:
        super().__init__(ROOT)
        self.fs = cast(Any, files)
        self.path = ROOT
