from .masked_attention import MASK_EXACT, UNREAD, MaskedCosts
from .padding_masks import PaddingMasks

__all__ = ["MASK_EXACT", "UNREAD", "MaskedCosts", "PaddingMasks"]
