from .masked_attention import MASK_EXACT, MaskedCosts
from .padding_masks import PaddingMasks

__all__ = ["MASK_EXACT", "MaskedCosts", "PaddingMasks"]
