"""What would Catamount have counted?"""
