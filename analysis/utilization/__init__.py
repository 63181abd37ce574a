"""What fraction of a peak does training reach?"""
