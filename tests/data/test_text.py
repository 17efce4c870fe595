import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from scafflix.data.text import BEGIN, CHARACTERS, CODES, END, OTHER, continued, decode, encode
from scafflix.data.text import sequences as cut


def test_every_character_of_the_vocabulary_has_a_code_of_its_own() -> None:
    codes = encode(CHARACTERS)
    assert codes.dtype == np.uint8
    assert codes.tolist() == list(range(3, 89))
    assert (OTHER, CODES) == (89, 90)


@given(st.text(alphabet=CHARACTERS))
def test_decoding_undoes_encoding(text: str) -> None:
    assert decode(encode(text)) == text


def test_bytes_are_encoded_like_the_text_they_spell() -> None:
    assert encode(b"To be").tolist() == encode("To be").tolist()


@pytest.mark.parametrize("text", ["é", "\u2014", "\U0001f600", "\ud800", "\0", "+"])
def test_any_other_character_is_one_code(text: str) -> None:
    assert encode(text).tolist() == [OTHER]
    assert decode(encode(text)) == "�"


def test_decoding_skips_padding_begin_end_and_absent_labels() -> None:
    assert decode(np.array([BEGIN, 3, END, 0, -1])) == "d"


@given(st.lists(st.text(alphabet=CHARACTERS, max_size=200), min_size=1, max_size=4))
def test_the_labels_are_the_text_and_its_end(texts: list[str]) -> None:
    features, labels = cut(texts)
    assert features.shape == labels.shape
    assert (features.dtype, labels.dtype) == (np.uint8, np.int8)
    assert len(features) == sum(-(-(len(text) + 1) // 80) for text in texts)
    assert decode(features) == decode(labels) == "".join(texts)
    assert (features == BEGIN).sum() == (labels == END).sum() == len(texts)
    assert ((labels == -1) == (features == 0)).all()


def test_each_label_is_the_next_code_also_across_windows() -> None:
    features, labels = cut(["x" * 79 + "abc"])
    assert features.shape == (2, 80)
    assert labels[0, -1] == features[1, 0] == encode("a")[0]


def test_no_text_gives_no_sequences() -> None:
    assert cut([])[0].shape == (0, 80)


def test_a_text_with_its_continuation_is_shifted_by_one() -> None:
    text = "".join(CHARACTERS[i % 86] for i in range(80))
    features, labels = continued([text], ["q"])
    assert (decode(features), decode(labels)) == (text, text[1:] + "q")
    assert (features.dtype, labels.dtype) == (np.uint8, np.int8)
