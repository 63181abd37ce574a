"""torchvision's models and their data.

torchvision's architectures with random weights; random images, or CIFAR-10 from files that the user has.
"""
