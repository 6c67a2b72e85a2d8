import hashlib

import pytest

from fourviews.data.files.checksums import ChecksumError, digest, parse_checksum, verify


@pytest.mark.parametrize("algorithm", ["md5", "sha1", "sha256"])
def test_digest_is_that_of_the_whole_content(tmp_path, algorithm):
    content = bytes(range(256)) * 5000
    file = tmp_path / "file"
    file.write_bytes(content)
    expected = hashlib.new(algorithm, content).hexdigest()
    assert digest(file, algorithm) == expected
    verify(file, f"{algorithm}:{expected.upper()}")
    file.write_bytes(content[:-1] + b"x")
    with pytest.raises(ChecksumError, match=f"file has {algorithm}"):
        verify(file, f"{algorithm}:{expected}")


@pytest.mark.parametrize("checksum", ["", "abc", "md5:abc", "crc32:00000000", "sha256:" + "g" * 64])
def test_malformed_checksums_are_refused(checksum):
    with pytest.raises(ValueError, match="checksum is"):
        parse_checksum(checksum)
