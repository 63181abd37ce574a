"""What did a recording count of each kernel, once and without gaps?

Corrects counts where sizes were recorded. A product without sizes has no count, and the total of its phase is
unknown.
"""
