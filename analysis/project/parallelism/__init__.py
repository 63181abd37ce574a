"""How is a transformer step split over devices?"""
