"""stub"""
def audit_loss(batch, metrics, facts):
    return ()
