pub(crate) fn run(_: &mut crate::report::Report, _: crate::server::Kind) -> anyhow::Result<()> {
    Ok(())
}
