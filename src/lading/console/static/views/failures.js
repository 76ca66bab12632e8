export const title = () => "Soon";
export async function render(main) { main.append("not yet"); }
