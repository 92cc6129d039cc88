def of(pipeline):
    return None
