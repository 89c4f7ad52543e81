"""Compressed matrices: what the functions of ``warploom.sparse`` compute and refuse."""

from __future__ import annotations

import numpy as np
import pytest
import tvm

from tests.shared.reference import numpy_dtype, random_array
from warploom.errors import IllegalCombination
from warploom.sparse import SPARSITY, compress, decompress, prune_2_4, sparsity
from warploom.target.wgmma import WGMMA_SPARSE_KINDS

DTYPES = sorted(SPARSITY)


def bits(array: np.ndarray) -> np.ndarray:
    return array.view(f"u{array.itemsize}")


@pytest.mark.parametrize("dtype", DTYPES)
def test_a_pruned_matrix_is_what_its_compressed_form_stands_for(dtype, rng):
    for rows, units in rng.integers(1, 9, (20, 2)):
        k = int(units) * sparsity(dtype).metadata_unit
        pruned = prune_2_4(random_array(rng, (int(rows), k), dtype))
        values, metadata = compress(pruned)
        assert values.shape == (rows, k // 2) and values.dtype == numpy_dtype(dtype)
        assert metadata.shape == (rows, sparsity(dtype).metadata_columns(k))
        np.testing.assert_array_equal(decompress(values, metadata), pruned)
        # Metadata never is what hardware does not define, and indices ascend.
        nibbles = np.stack([metadata & 15, metadata >> 4])
        assert (nibbles & 3 < nibbles >> 2).all()


@pytest.mark.parametrize("dtype", DTYPES)
def test_compressed_matrices_go_through_dense_ones(dtype, rng):
    """Any values with any metadata have a dense matrix; without zeros it has one such form."""
    rule = sparsity(dtype)
    k = 6 * rule.metadata_unit
    values = random_array(rng, (5, k // 2), dtype)
    values[values == 0] = 1
    metadata = compress(prune_2_4(random_array(rng, (5, k), dtype)))[1]
    again = compress(decompress(values, metadata))
    np.testing.assert_array_equal(bits(again[0]), bits(values))
    np.testing.assert_array_equal(again[1], metadata)



@pytest.mark.parametrize("dtype", DTYPES)
def test_pruning_keeps_the_largest_of_each_group(dtype, rng):
    rule = sparsity(dtype)
    dense = random_array(rng, (7, 8 * rule.metadata_unit), dtype)
    pruned = prune_2_4(dense)
    groups = np.abs(dense.astype(np.float64)).reshape(7, -1, rule.group)
    kept = np.abs(pruned.astype(np.float64)).reshape(groups.shape)
    np.testing.assert_array_equal(
        np.sort(kept, 2)[..., rule.held :], np.sort(groups, 2)[..., rule.held :]
    )
    assert ((pruned == dense) | (pruned == 0)).all()
    np.testing.assert_array_equal(prune_2_4(pruned), pruned)


def test_numbers_that_have_no_order_stay():
    dense = np.array([[np.nan, 1, 2, 3, -np.inf, 0, np.nan, 5]], "float16")
    np.testing.assert_array_equal(
        prune_2_4(dense), np.array([[np.nan, 0, 0, 3, -np.inf, 0, np.nan, 0]], "float16")
    )
    least = np.array([[-128, 127, -128, 0] * 2], "int8")
    np.testing.assert_array_equal(prune_2_4(least), [[-128, 0, -128, 0] * 2])


def test_four_zero_bits_are_the_first_elements():
    """Loads over the edge of a matrix bring them."""
    np.testing.assert_array_equal(
        decompress(np.array([[1, 2, 3, 4]], "int8"), np.array([[0x40]], "uint8")),
        [[1, 2, 0, 0, 3, 4, 0, 0]],
    )


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float8_e4m3fn", "int8"])
def test_arrays_of_other_libraries(dtype, rng):
    dense = prune_2_4(random_array(rng, (4, 32), dtype))
    values, metadata = compress(tvm.runtime.tensor(dense))
    assert values.dtype == dense.dtype
    np.testing.assert_array_equal(decompress(tvm.runtime.tensor(values), metadata), dense)


@pytest.mark.parametrize("kind", WGMMA_SPARSE_KINDS, ids=lambda k: f"{k.a}-{k.b}-{k.d}")
def test_instructions_have_this_metadata(kind):
    assert kind.metadata_bytes == sparsity(kind.a).metadata_columns(kind.k)
    assert kind.k == 2 * kind.a_k and kind.selectors * kind.metadata_bytes == 8


ONES = np.ones((2, 16), "float16")


@pytest.mark.parametrize(
    "function, arguments, sentence",
    [
        (compress, [ONES], r"row 0, columns 0 to 3 of A are \[1.0, 1.0, 1.0, 1.0\]; at most 2"),
        (compress, [np.eye(4, 12, dtype="float16")], r"A has shape \(4, 12\); .* multiple of 8"),
        (compress, [np.zeros(8, "int8")], r"A has shape \(8,\)"),
        (prune_2_4, [np.zeros((2, 8))], "A has dtype float64; sparse MMAs take float16"),
        (decompress, [ONES, np.full((2, 4), 0x4E, "uint8")[:, :3]], "metadata has shape .* need"),
        (decompress, [ONES, np.full((2, 4), 0x4E, "int8")], "metadata is int8"),
        (decompress, [ONES, np.full((2, 4), 0xE5, "uint8")],
         r"row 0, group 0 \(columns 0 to 3\) is 0x5; it must be two different indices"),
        (decompress, [np.ones((1, 4), "float32"), np.array([[0x44, 0x94]], "uint8")],
         "row 0, group 3 .* is 0x9; it must be 0x4 or 0xe"),
    ],
)  # fmt: skip
def test_what_cannot_be_compressed_is_refused(function, arguments, sentence):
    with pytest.raises(IllegalCombination, match=sentence):
        function(*arguments)


def test_crowded_groups_are_named_by_their_place(rng):
    dense = prune_2_4(rng.standard_normal((9, 64)).astype("float16"))
    row, group = int(rng.integers(9)), int(rng.integers(16))
    dense[row, 4 * group : 4 * group + 4] = 1
    with pytest.raises(
        IllegalCombination, match=f"row {row}, columns {4 * group} to {4 * group + 3} "
    ):
        compress(dense)
