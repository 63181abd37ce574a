"""Small cells of a sweep that meet faults: what each takes, and the launch at which its fault comes."""

KERNEL_NS = 300_000  # long steps are few: a cell is measured in seconds
LAUNCH = 300  # after the first gradient of a filter: in one of the first steps
CELLS = ("--quick", "--models", "resnet18", "--size", "image_size=32", "--precisions", "fp32", "--methods", "exact")
CELLS += ("--counters", "flopledger", "--cell-timeout", 15)
